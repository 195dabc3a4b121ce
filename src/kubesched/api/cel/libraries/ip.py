"""IP addresses and networks: `ip('10.0.0.1').family()`, `cidr('10.0.0.0/8').containsIP(...)`."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from kubesched.api.cel import costs
from kubesched.api.cel.environment import CallCost, Library, declare
from kubesched.api.cel.errors import EvaluationError
from kubesched.api.cel.libraries.conversions import succeeds
from kubesched.api.cel.libraries.ip_parsing import AddressError, parse_address
from kubesched.api.cel.operators import no_such_overload
from kubesched.api.cel.types import CIDR, IP, Type
from kubesched.api.cel.values import Value
from kubesched.base.logs import quoted as quote

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class IPAddress:
    """An address without a zone."""

    cel_type: ClassVar[Type] = IP
    address: Address

    @classmethod
    def parse(cls, text: str) -> IPAddress:
        try:
            address, zone = parse_address(text)
        except AddressError as error:
            raise EvaluationError(
                f"IP Address {quote(text)} parse error during conversion from string: {error}"
            ) from error
        if zone:
            raise EvaluationError(f"IP address {quote(text)} with zone value is not allowed")
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            raise EvaluationError(f"IPv4-mapped IPv6 address {quote(text)} is not allowed")
        return cls(address)

    def size(self) -> int:
        """Bytes of the address, which is also its cost."""
        return self.address.max_prefixlen // 8

    def __str__(self) -> str:
        return str(self.address)


@dataclass(frozen=True, slots=True)
class Network:
    """An address with a prefix length; bits after the prefix may be set."""

    cel_type: ClassVar[Type] = CIDR
    address: Address
    bits: int

    @classmethod
    def parse(cls, text: str) -> Network:
        problem = "network address parse error during conversion from string: "
        try:
            address, bits = _prefix(text)
        except AddressError as error:
            raise EvaluationError(f"{problem}{problem}{error}") from error
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            raise EvaluationError(f"{problem}IPv4-mapped IPv6 address {quote(text)} is not allowed")
        return cls(address, bits)

    def size(self) -> int:
        return math.ceil(self.bits / 8)

    def masked(self) -> Network:
        shift = self.address.max_prefixlen - self.bits
        return Network(type(self.address)(int(self.address) >> shift << shift), self.bits)

    def contains(self, address: Address) -> bool:
        if address.version != self.address.version:
            return False
        shift = self.address.max_prefixlen - self.bits
        return int(address) >> shift == int(self.address) >> shift

    def contains_network(self, other: Network) -> bool:
        return self.bits <= other.bits and self.contains(other.address)

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"


def _prefix(text: str) -> tuple[Address, int]:
    """An address and prefix length, as Go's `netip.ParsePrefix` reads them."""

    def failed(message: str) -> AddressError:
        return AddressError(f"netip.ParsePrefix({quote(text)}): {message}")

    before, slash, bits = text.rpartition("/")
    if not slash:
        raise failed("no '/'")
    try:
        address, zone = parse_address(before)
    except AddressError as error:
        raise failed(str(error)) from error
    if zone:
        raise failed("IPv6 zones cannot be present in a prefix")
    is_number = bits.isascii() and bits.isdigit() and len(bits) < 19
    if not is_number or (len(bits) > 1 and bits[0] == "0"):
        raise failed(f"bad bits after slash: {quote(bits)}")
    if int(bits) > address.max_prefixlen:
        raise failed("prefix length out of range")
    return address, int(bits)


# -- functions -------------------------------------------------------------------------------------


def _is_global_unicast(ip: IPAddress) -> bool:
    address = ip.address
    if isinstance(address, ipaddress.IPv4Address) and int(address) in (0, 2**32 - 1):
        return False
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
    )


def _is_link_local_multicast(ip: IPAddress) -> bool:
    packed = ip.address.packed
    if ip.address.version == 4:
        return packed[:3] == b"\xe0\x00\x00"
    return packed[0] == 0xFF and packed[1] & 0x0F == 0x02


def _of_cidr_ip(args: tuple[Value, ...], result: Value) -> int:
    """`ip` costs reading the text, or 1 as a member of a network."""
    return 1 if isinstance(args[0], Network) else costs.of_first_argument(args, result)


def _and_text(cost: CallCost) -> CallCost:
    """The cost plus that of reading an address from text."""

    def with_text(args: tuple[Value, ...], result: Value) -> int:
        return cost(args, result) + costs.traversal(costs.actual_size(args[1]))

    return with_text


def _containment(extra: Callable[[int], int]) -> CallCost:
    def cost(args: tuple[Value, ...], _result: Value) -> int:
        size = costs.actual_size(args[0])
        return costs.traversal(size + size) + extra(size)

    return cost


def _contains_text(network: Network, text: str) -> bool:
    try:
        address = IPAddress.parse(text).address
    except EvaluationError as error:
        # Upstream: the reason is lost, unlike with containsCIDR.
        raise no_such_overload() from error
    return network.contains(address)


# Upstream: if the overload is only known at run time, reading the text is free.
_CONTAINS_IP = _containment(lambda _size: 0)
_CONTAINS_CIDR = _containment(lambda size: costs.traversal(size) + 1)

IPS = Library(
    "kubernetes.net.ip",
    (
        declare("ip(string) -> ip", IPAddress.parse),
        declare("isIP(string) -> bool", succeeds(IPAddress.parse)),
        declare("ip.isCanonical(string) -> bool", lambda text: str(IPAddress.parse(text)) == text),
        declare(".family(ip) -> int", lambda ip: ip.address.version),
        declare(".isUnspecified(ip) -> bool", lambda ip: ip.address.is_unspecified),
        declare(".isLoopback(ip) -> bool", lambda ip: ip.address.is_loopback),
        declare(".isLinkLocalUnicast(ip) -> bool", lambda ip: ip.address.is_link_local),
        declare(".isLinkLocalMulticast(ip) -> bool", _is_link_local_multicast),
        declare(".isGlobalUnicast(ip) -> bool", _is_global_unicast),
        declare("string(ip) -> string", str),
    ),
    type_names={IP.name: IP},
    costs={
        "ip": _of_cidr_ip,
        "isIP": costs.of_first_argument,
        "ip.isCanonical": costs.of_first_argument_twice,
    },
)

CIDRS = Library(
    "kubernetes.net.cidr",
    (
        declare("cidr(string) -> cidr", Network.parse),
        declare("isCIDR(string) -> bool", succeeds(Network.parse)),
        declare(".containsIP(cidr, string) -> bool", _contains_text, cost=_and_text(_CONTAINS_IP)),
        declare(".containsIP(cidr, ip) -> bool", lambda network, ip: network.contains(ip.address)),
        declare(
            ".containsCIDR(cidr, string) -> bool",
            lambda network, text: network.contains_network(Network.parse(text)),
            cost=_and_text(_CONTAINS_CIDR),
        ),
        declare(".containsCIDR(cidr, cidr) -> bool", Network.contains_network),
        declare(".ip(cidr) -> ip", lambda network: IPAddress(network.address)),
        declare(".prefixLength(cidr) -> int", lambda network: network.bits),
        declare(".masked(cidr) -> cidr", Network.masked),
        declare("string(cidr) -> string", str),
    ),
    type_names={CIDR.name: CIDR},
    costs={
        **dict.fromkeys(("cidr", "isCIDR"), costs.of_first_argument),
        "containsIP": _CONTAINS_IP,
        "containsCIDR": _CONTAINS_CIDR,
    },
)
