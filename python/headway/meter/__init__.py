"""The part of Headway that runs inside a measured program. It imports no third-party package."""
