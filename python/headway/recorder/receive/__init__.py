"""The receiving half of the recorder: datagrams, and the processes that send them."""
