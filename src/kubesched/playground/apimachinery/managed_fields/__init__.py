"""Who set which field: `managedFields`, kept on every write and decided on by server-side apply."""
