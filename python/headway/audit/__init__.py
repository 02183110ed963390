"""`headway audit`: which extension modules an application imports, and what they support."""
