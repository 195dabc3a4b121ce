"""The shape of every served kind as data, and what follows from it: strict decoding, merging, OpenAPI."""
