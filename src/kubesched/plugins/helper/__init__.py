"""What several plugins share; upstream calls this folder `helper`, too."""
