"""The settings of one connection, each with where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: What `login.type` may be.
DIGEST, SASL_DIGEST, SASL_GSSAPI = "digest", "sasl-digest-md5", "sasl-gssapi"
#: What `serializer` may be.
PICKLE, JSON = "pickle", "json"
SERIALIZERS = (PICKLE, JSON)
#: What `share` may be.
GREEDY, BALANCED, WEIGHTED = "greedy", "balanced", "weighted"
POLICIES = (GREEDY, BALANCED, WEIGHTED)
#: What `task-output` may be at most, and is by default, in bytes.
OUTPUT_MAX, OUTPUT_DEFAULT = 64 * 1024, 16 * 1024
#: A larger value goes to the store, unless another limit is given; and the largest limit.
INLINE_LIMIT, INLINE_LIMIT_MAX = 32 * 1024, 512 * 1024
#: What an origin begins with that is a profile.
OF_PROFILE = "profile "
LOGIN_TYPES = (DIGEST, SASL_DIGEST, SASL_GSSAPI)


@dataclass(frozen=True)
class Settings:
    """All that says how to connect. The fields are described in `fields.py`; times are in seconds.

    An empty text means that the field is not set. `origins` names for each field that is set where
    it came from.
    """

    hosts: str = "127.0.0.1:2181"
    root: str = "/zkplan"
    login_type: str = ""
    login_user: str = ""
    login_password: str = field(default="", repr=False)
    login_file: str = ""
    login_command: str = ""
    login_service: str = ""
    login_principal: str = ""
    access: str = ""
    tls_ca: str = ""
    tls_system_ca: bool = False
    tls_certificate: str = ""
    tls_key: str = ""
    tls_key_password_file: str = ""
    tls_server_name: str = ""
    tls_check_host_name: bool = True
    secret: bytes = field(default=b"", repr=False)
    secret_files: tuple[str, ...] = ()
    store: str = ""
    inline_limit: int = INLINE_LIMIT
    serializer: str = PICKLE
    queue: tuple[str, ...] = ()
    share: str = WEIGHTED
    task_output: int = OUTPUT_DEFAULT
    session_timeout: float = 10.0
    connect_timeout: float = 10.0
    #: The profile that was chosen; empty: none.
    profile: str = ""
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def has_login(self) -> bool:
        """Whether this client can be told from others: by a login or a certificate."""
        return bool(self.login_type or self.tls_certificate)

    @property
    def names_server(self) -> bool:
        """Whether anything says which ZooKeeper is meant, so that it is not only the default."""
        return bool(self.profile or "hosts" in self.origins)

    @property
    def uses_tls(self) -> bool:
        return bool(self.tls_ca or self.tls_system_ca)

    @property
    def by_profile(self) -> frozenset[str]:
        """The fields that are as the profile sets them."""
        return frozenset(
            name for name, origin in self.origins.items() if origin.startswith(OF_PROFILE)
        )
