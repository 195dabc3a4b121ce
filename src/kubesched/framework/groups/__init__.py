"""Groups of pods: what is known about them, and the extension points that place them."""
