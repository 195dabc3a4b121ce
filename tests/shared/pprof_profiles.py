"""Profiles in pprof's format, as Go writes them: what `kubesched.api.pprof` reads."""

import gzip

from kubesched.api.protobuf import bytes_field, varint


def number(tag, value):
    return varint(tag << 3) + varint(value)


def profile_of(samples, kind=("cpu", "nanoseconds")):
    """A profile: value by stack, a stack being names of functions, innermost first."""
    texts = ["", *kind, *dict.fromkeys(name for stack in samples for name in stack)]
    parts = [bytes_field(1, number(1, 1) + number(2, 2))]
    for stack, value in samples.items():
        places = b"".join(number(1, texts.index(name, 3)) for name in stack)
        parts.append(bytes_field(2, places + number(2, value)))
    for at in range(3, len(texts)):
        parts.append(bytes_field(4, number(1, at) + bytes_field(4, number(1, at))))
        parts.append(bytes_field(5, number(1, at) + number(2, at)))
    parts += [bytes_field(6, text.encode()) for text in texts]
    return gzip.compress(b"".join(parts))
