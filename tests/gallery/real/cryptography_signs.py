"""cryptography signs in two threads, and drops the GIL meanwhile."""

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from ticker import beside_a_ticker

key = rsa.generate_private_key(65537, 2048)
beside_a_ticker(lambda: key.sign(b"x", padding.PKCS1v15(), hashes.SHA256()), 2)
