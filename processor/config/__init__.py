"""The configuration: one TOML file, overridden by the environment, checked as a whole.

    values     secrets, durations, librdkafka properties
    sections   the sections and their defaults
    reading    tables to sections, collecting every problem
    tenants    a tenant's table to its settings, seed and digest
    loading    all of it together

A variable ``GFORCE_KAFKA__BOOTSTRAP_SERVERS`` overrides ``bootstrap_servers`` of ``[kafka]``: two underscores
between levels. Its value is read as TOML, or else taken as a string.
"""

from .loading import ConfigError, example_text, load, shown
from .sections import Config, Http, Kafka, Log, Processing, Redis, Tenants, TenantTable, Topics
from .tenants import TenantConfig, UnknownTenantError, canonical, digest, tenant_settings
from .values import Duration, Properties, RedisUrl, Secret

__all__ = [
    "Config",
    "ConfigError",
    "Duration",
    "Http",
    "Kafka",
    "Log",
    "Processing",
    "Properties",
    "Redis",
    "RedisUrl",
    "Secret",
    "TenantConfig",
    "TenantTable",
    "Tenants",
    "Topics",
    "UnknownTenantError",
    "canonical",
    "digest",
    "example_text",
    "load",
    "shown",
    "tenant_settings",
]
