"""Makes an authority and two certificates of it for localhost, P-256 and RSA, in the folder that is named. Not a test."""

import datetime
import pathlib
import sys

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NOW = datetime.datetime.now(datetime.timezone.utc)


def builder(name, key, issuer, days):
    return (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - datetime.timedelta(hours=1))
        .not_valid_after(NOW + datetime.timedelta(days=days))
    )


def named(name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def usage(allowed):
    kinds = (
        "digital_signature content_commitment key_encipherment data_encipherment key_agreement key_cert_sign crl_sign "
        "encipher_only decipher_only"
    )
    return x509.KeyUsage(**{kind: kind == allowed for kind in kinds.split()})


def pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)


def main(folder):
    root = ec.generate_private_key(ec.SECP256R1())
    authority = builder("authority", root, "authority", 900).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(root.public_key())
    authority = authority.add_extension(identifier, critical=False).add_extension(usage("key_cert_sign"), critical=True)
    (folder / "ca.pem").write_bytes(pem(authority.sign(root, hashes.SHA256())))
    keys = {"ec": ec.generate_private_key(ec.SECP256R1()), "rsa": rsa.generate_private_key(65537, 2048)}
    for kind, key in keys.items():
        # The modern recommendation wants less than 90 days.
        leaf = builder("localhost", key, "authority", 80)
        leaf = leaf.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        leaf = leaf.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        leaf = leaf.add_extension(usage("digital_signature"), critical=True)
        above = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
        leaf = leaf.add_extension(above, critical=False)
        (folder / f"{kind}.crt").write_bytes(pem(leaf.sign(root, hashes.SHA256())))
        plain = serialization.NoEncryption()
        form = serialization.PrivateFormat.PKCS8
        (folder / f"{kind}.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
