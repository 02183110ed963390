"""Threads and their GILs in virtual time: the verb `headway simulate`."""
