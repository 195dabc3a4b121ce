"""The scheduler: the loop that pops pods from the queue, places them, and binds them."""
