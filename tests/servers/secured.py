"""A broker that lets nobody in without TLS and a password, and nobody do what an ACL does not allow."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from .broker import Broker, Listener
from .redis_server import free_port

PASSWORD = "secret-of-the-tests"
MANUAL = Path(__file__).parents[2] / "docs" / "operations.md"


class SecuredBroker:
    """SASL_SSL for everybody by name; the plain listener is the super user's, which sets up topics and rights."""

    def __init__(self, folder: Path, users: Iterable[str]) -> None:
        keys = _certificate(folder)
        self.authority, self.port = folder / "authority.pem", free_port()
        known = " ".join(f'user_{user}="{PASSWORD}"' for user in users)
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        secure = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "listener.name.secure.ssl.keystore.location": str(keys),
            "listener.name.secure.ssl.keystore.type": "PKCS12",
            "listener.name.secure.ssl.keystore.password": PASSWORD,
            "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.secure.plain.sasl.jaas.config": f"{module} required {known};",
        }
        self.broker = Broker(secure, [Listener("SECURE", "SASL_SSL", self.port)])

    @property
    def bootstrap(self) -> str:
        return f"localhost:{self.port}"

    def properties(self, user: str) -> dict[str, str]:
        """What a client sets to come in by this name."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self.authority),
        }

    def allow(self, user: str, rights: Iterable[Right]) -> None:
        """These rights and no others."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        everything = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            f"User:{user}",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for gone in admin.delete_acls([everything]).values():
            gone.result(30)
        wanted = [right.binding(user) for right in rights]
        for made in admin.create_acls(wanted).values() if wanted else ():
            made.result(30)


class Right:
    """One operation on one resource."""

    def __init__(self, kind: str, name: str, operation: str) -> None:
        self.kind, self.name, self.operation = kind, name, operation
        self.prefixed = kind == "TRANSACTIONAL_ID"

    def binding(self, user: str) -> AclBinding:
        pattern = ResourcePatternType.PREFIXED if self.prefixed else ResourcePatternType.LITERAL
        return AclBinding(
            ResourceType[self.kind],
            self.name,
            pattern,
            f"User:{user}",
            "*",
            AclOperation[self.operation],
            AclPermissionType.ALLOW,
        )

    def __repr__(self) -> str:
        return f"{self.operation} on {self.kind} {self.name}"


def rights_by_the_manual(who: str, prefix: str, group: str, roles: Iterable[str]) -> list[Right]:
    """The rows of the manual's table of rights that are for ``who``."""
    found = []
    for line in MANUAL.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and who in re.split(r", (?=`gforce|processor|producers|operator)", cells[0]):
            operations = re.findall(r"\b[A-Z]{4,}(?:_[A-Z]+)*\b", cells[2].split("(")[0].split("on the cluster")[0])
            found += [
                Right(*where, operation=one)
                for where in _resources(cells[1], prefix, group, roles)
                for one in operations
            ]
    assert found, f'the manual has no rights for "{who}"'
    return found


def _resources(text: str, prefix: str, group: str, roles: Iterable[str]) -> list[tuple[str, str]]:
    if text == "cluster":
        return [("BROKER", "kafka-cluster")]
    if "transactional" in text:
        return [("TRANSACTIONAL_ID", f"{group}-")]
    topics = list(roles) if "seven topics" in text else []
    names = re.findall(r"`([^`]+)`", text)
    found = [("TOPIC", prefix + name) for name in [*topics, *names] if name != "<group>"]
    return [*found, ("GROUP", group)] if "<group>" in names else found


def _certificate(folder: Path) -> Path:
    """A key for ``localhost``, and its certificate for clients to trust."""
    keys = folder / "broker.p12"
    common = ["-keystore", keys, "-storetype", "PKCS12", "-storepass", PASSWORD, "-alias", "broker"]
    make = ["-genkeypair", "-keyalg", "RSA", "-dname", "CN=localhost", "-ext", "SAN=dns:localhost", "-validity", "2"]
    _keytool(*make, *common)
    _keytool("-exportcert", "-rfc", "-file", folder / "authority.pem", *common)
    return keys


def _keytool(*arguments: object) -> None:
    subprocess.run(["keytool", *map(str, arguments)], check=True, capture_output=True, timeout=60)
