"""The scheduler: the loop that takes pods from the queue, places them, and binds them."""
