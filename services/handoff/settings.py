"""The settings of the hand-off, read once, from `DIPTYCH_HANDOFF_*`."""

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import AliasChoices, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from services.wire.errors import ConfigError

MIB = 2**20
PORT_RANGE = re.compile(r"^(\d{1,5})-(\d{1,5})$")


class HandoffSettings(BaseSettings):
    """Sizes in bytes, times in seconds unless the name says otherwise."""

    model_config = SettingsConfigDict(env_prefix="DIPTYCH_HANDOFF_", frozen=True, env_ignore_empty=True, extra="ignore")

    arena_bytes: int = Field(64 * MIB, ge=MIB, description="One registered region of host memory a process.")
    vram_arena_bytes: int = Field(0, ge=0, description="The same on the CUDA device; 0: no CUDA region.")
    vram_device: int = Field(0, ge=0, description="Logical CUDA device of the CUDA region.")
    oversize_bytes: int = Field(
        2048 * MIB, ge=0, description="Cap on all regions that bundles too big for the arena get."
    )
    lease: float = Field(600.0, gt=0, description="How long a slot lives if nobody releases it.")
    max_lease: float = Field(3600.0, gt=0, description="No slot may ask for more.")
    max_slots: int = Field(4096, ge=1, description="Slots a producer keeps, quarantined ones included.")
    announce_grace: float = Field(
        1.0, ge=0, description="A released slot that no READ was announced for rests this long."
    )
    quarantine: float = Field(
        60.0, gt=0, description="A slot whose READ was announced but never ended rests this long."
    )
    key: SecretStr | None = Field(None, description="HMAC-SHA256 key of the tickets; none: tickets are not signed.")
    key_file: Path | None = Field(None, description="A file that holds the key (a mounted secret).")
    bind_host: str = Field("0.0.0.0", description="Address whose network device UCX listens on; 0.0.0.0: all of them.")
    advertise_host: str | None = Field(None, description="Address that peers reach this process at; none: found out.")
    port_range: str | None = Field(None, description="UCX_TCP_PORT_RANGE, such as 41000-41063, for firewalls.")
    progress_delay_us: int = Field(
        1000, ge=0, description="Rest of NIXL's progress thread, microseconds; 0 burns a core."
    )
    require_rdma: bool = Field(
        False,
        validation_alias=AliasChoices("require_rdma", "DIPTYCH_REQUIRE_RDMA", "DIPTYCH_HANDOFF_REQUIRE_RDMA"),
        description="Refuse to run over TCP.",
    )
    transfer_deadline: float = Field(30.0, gt=0, description="Upper bound of one READ, whatever the caller allows.")
    chunk_bytes: int = Field(4 * MIB, ge=65536, description="Bytes of one NIXL READ; bigger bundles take several.")
    landing_bytes: int = Field(64 * MIB, ge=MIB, description="The consumer's registered region that READs land in.")
    copy_below: int = Field(MIB, ge=0, description="Bundles up to this size are copied out of the landing region.")
    max_peers: int = Field(64, ge=1, description="Producers a consumer keeps a connection to.")
    max_fetches: int = Field(256, ge=1, description="READs a consumer takes at a time, quarantined ones included.")
    clock_skew: float = Field(5.0, ge=0, description="How far the clocks of two nodes may differ.")
    checksum: Literal["auto", "blake3"] = Field("auto", description="auto: BLAKE3 up to 256 KiB, page sums above.")

    @field_validator("port_range")
    @classmethod
    def _ports(cls, value: str | None) -> str | None:
        if not value:
            return None
        match = PORT_RANGE.match(value)
        if match is None or not 1024 <= int(match[1]) <= int(match[2]) <= 65535:
            raise ValueError(f"{value!r} is not FIRST-LAST with 1024 <= FIRST <= LAST <= 65535")
        return value

    @field_validator("bind_host", "advertise_host")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if not value:
            return None
        try:
            return str(ipaddress.ip_address(value))
        except ValueError as error:
            raise ValueError(f"{value!r} is not an IP address; UCX binds to addresses, not to names") from error

    @field_validator("key_file", "key", mode="before")
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        return None if value == "" else value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.key is not None and self.key_file is not None:
            raise ValueError("key and key_file are both set; keep one")
        if self.chunk_bytes % 4096:
            raise ValueError("chunk_bytes must be a multiple of 4096")
        if self.advertise_host is not None and ipaddress.ip_address(self.advertise_host).is_unspecified:
            raise ValueError(f"advertise_host {self.advertise_host} is no address that a peer can reach")
        return self

    def under(self, connector: Mapping[str, Any]) -> Self:
        """These settings with what the stage configuration's NixlConnector says where the environment says nothing.

        connector: its `extra`; `host` (an address; `auto` and `0.0.0.0` mean the default) and `transfer_timeout_s`.
        Raises ConfigError if its host is a name.
        """
        given = {name for name in self.model_fields_set if getattr(self, name) is not None}
        changed: dict[str, Any] = {}
        host = connector.get("host")
        if host not in (None, "auto", "", "*", "0.0.0.0", "::") and not given & {"bind_host", "advertise_host"}:
            try:
                changed["bind_host"] = str(ipaddress.ip_address(str(host)))
            except ValueError as error:
                message = f"connectors: host {host!r} is not an IP address; UCX binds to addresses, not to names"
                raise ConfigError(message, param="connectors") from error
        if "transfer_timeout_s" in connector and "transfer_deadline" not in given:
            changed["transfer_deadline"] = float(connector["transfer_timeout_s"])
        return self.model_copy(update=changed)

    def secret(self) -> bytes | None:
        """The HMAC key, or None. Raises ConfigError-worthy OSError text as ValueError if the file is not readable."""
        if self.key is not None:
            return self.key.get_secret_value().encode()
        if self.key_file is None:
            return None
        secret = self.key_file.read_bytes().strip()
        if not secret:
            raise ValueError(f"key_file {self.key_file} is empty")
        return secret
