"""The schemas of served kinds, used for strict decoding, merging and OpenAPI."""
