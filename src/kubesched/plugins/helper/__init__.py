"""Code shared by several plugins; upstream calls this folder `helper`, too."""
