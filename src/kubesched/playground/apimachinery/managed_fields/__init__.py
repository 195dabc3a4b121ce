"""Field ownership (`managedFields`): tracked on every write, enforced by server-side apply."""
