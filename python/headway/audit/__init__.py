"""`headway audit`: the extension modules that an application imports, and what they support."""
