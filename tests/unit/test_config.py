"""One file and the environment become a configuration, or a complete list of what is wrong with them."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.config import (
    Config,
    ConfigError,
    Duration,
    Properties,
    RedisUrl,
    Secret,
    TenantTable,
    UnknownTenantError,
    canonical,
    digest,
    example_text,
    load,
    shown,
    tenant_settings,
)
from processor.core.events import Limits
from processor.core.settings import Balance, Policy, Prior

SEED = "5eed" * 16
SEEDED = {"GFORCE_PROCESSING__SEED": SEED}
HUNTER = "hunter2-Zq"


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def write(text: str) -> Path:
        path = tmp_path / "gforce.toml"
        path.write_text(text, "utf-8")
        return path

    return write


def problems_of(path: Path | None, environment: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as found:
        load(path, SEEDED if environment is None else environment)
    assert str(found.value).splitlines() == found.value.problems
    return found.value.problems


# Defaults and the example


def test_without_a_file_there_are_defaults() -> None:
    config = load(None, SEEDED)
    assert config.kafka.bootstrap_servers == "127.0.0.1:9092"
    assert config.kafka.instance  # the host's name
    assert config.limits == Limits()
    assert config.tenants.default == TenantTable()
    assert config.http.port == 9464


def test_the_example_loads_and_equals_the_defaults(file: Any) -> None:
    assert load(file(example_text()), SEEDED) == load(None, SEEDED)


def test_the_example_explains_every_key() -> None:
    """Each key stands in its section, set or commented out."""
    text = example_text()
    for section in msgspec.structs.fields(Config):
        kind = TenantTable if section.name == "tenants" else section.type
        heading = "[tenants.default]" if section.name == "tenants" else f"[{section.name}]"
        body = text.split(f"\n{heading}")[1]
        body = body if section.name == "tenants" else body.split("\n[")[0]
        for field in msgspec.structs.fields(kind):
            assert re.search(rf"^(# )?{field.encode_name} = ", body, re.MULTILINE), (section.name, field.name)


def test_the_example_sets_every_key_that_has_a_default() -> None:
    document = tomllib.loads(example_text())
    unset = {
        f"{name}.{field.encode_name}"
        for name, kind in {s.name: s.type for s in msgspec.structs.fields(Config) if s.name != "tenants"}.items()
        for field in msgspec.structs.fields(kind)
        if field.encode_name not in document[name]
    }
    assert unset == {"kafka.instance", "processing.seed", "http.token"}


def test_topics_have_full_names(file: Any) -> None:
    config = load(file('[topics]\nprefix = "eu."\njournal = "ledger"'), SEEDED)
    full = config.topics.full()
    assert list(full) == ["requests", "feedback", "decisions", "journal", "changelog", "dead_letters", "alerts"]
    assert (full["journal"], full["dead_letters"]) == ("eu.ledger", "eu.dead-letters")


# The environment


def test_the_environment_overrides_the_file(file: Any) -> None:
    path = file('[kafka]\nbootstrap_servers = "a:1"\n[tenants.default]\neta = 0.1')
    config = load(path, {**SEEDED, "GFORCE_KAFKA__BOOTSTRAP_SERVERS": "b:2", "GFORCE_TENANTS__DEFAULT__ETA": "0.2"})
    assert (config.kafka.bootstrap_servers, config.tenants.default.eta) == ("b:2", 0.2)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("LABELS", '["deny", "true"]', ("deny", "true")),
        ("POSITIVE", "true", True),
        ("EXPIRY", "30d", 30 * 86_400_000),
        ("EXPIRY", "5000", 5000),
        ("ETA", "auto", "auto"),
        ("ETA", '"auto"', "auto"),
        ("LAMBDA", "{ true = 2 }", {"true": 2.0}),
        ("LAMBDA__TRUE", "2", {"true": 2.0}),
        ("WINDOW", "7", 7),
    ],
)
def test_values_of_variables_are_toml_or_else_strings(key: str, text: str, value: object) -> None:
    config = load(None, {**SEEDED, f"GFORCE_TENANTS__DEFAULT__{key}": text})
    field = {"LAMBDA": "lambda_", "LAMBDA__TRUE": "lambda_"}.get(key, key.lower())
    assert getattr(config.tenants.default, field) == value


@pytest.mark.parametrize("password", ["0123", "1_000", "true", "1e5", '"quoted"', "[x]", "p=a#b", "2024-01-01"])
def test_a_password_in_a_variable_arrives_as_it_is(password: str) -> None:
    config = load(None, {**SEEDED, "GFORCE_KAFKA__PROPERTIES__SASL_PASSWORD": password})
    assert config.kafka.properties.reveal() == {"sasl.password": password}


@pytest.mark.parametrize("text", ["1234", "1_000", "true", "1e5", "plain", "2024-01-01"])
def test_a_string_that_looks_like_a_number_stays_a_string(text: str) -> None:
    config = load(None, {**SEEDED, "GFORCE_HTTP__TOKEN": text, "GFORCE_KAFKA__GROUP": text})
    assert config.http.token == Secret(text)
    assert config.kafka.group == text


def test_a_seed_of_digits_is_a_seed() -> None:
    assert load(None, {"GFORCE_PROCESSING__SEED": "12" * 32}).processing.seed == Secret("12" * 32)


def test_a_tenant_of_the_file_is_meant_whatever_its_case(file: Any) -> None:
    config = load(file("[tenants.Bank]\neta = 0.1"), {**SEEDED, "GFORCE_TENANTS__BANK__ETA": "0.3"})
    assert {name: table.eta for name, table in config.tenants.named.items()} == {"Bank": 0.3}


def test_other_variables_are_none_of_our_business() -> None:
    others = {"GFORCE_CONFIG": "x", "GFORCE_HTTP_PORT": "tcp://10.0.0.1:9464", "GFORCE_SERVICE_HOST": "1", "PATH": "/"}
    assert load(None, {**SEEDED, **others}) == load(None, SEEDED)


def test_a_variable_with_one_underscore_too_few_is_refused() -> None:
    found = problems_of(None, {**SEEDED, "GFORCE_KAFKA_BOOTSTRAP_SERVERS": "x"})
    assert "did you mean GFORCE_KAFKA__BOOTSTRAP_SERVERS?" in found[0]


# Problems


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[kafak]", "kafak: unknown key: did you mean kafka?"),
        ("kafka = 3", "kafka: expected a table [kafka]"),
        ("[kafka]\nbootstrap_server = 'x'", "kafka.bootstrap_server: unknown key: did you mean bootstrap_servers?"),
        ("[kafka]\nsession_timeout_ms = 'x'", "kafka.session_timeout_ms: expected an integer, got a string"),
        ("[kafka]\nsession_timeout_ms = true", "kafka.session_timeout_ms: expected an integer, got a boolean"),
        ("[kafka]\nsession_timeout_ms = 0", "kafka.session_timeout_ms: expected an integer >= 1"),
        ("[kafka]\nprotocol = 'new'", 'unknown value \'new\': use one of "classic", "consumer"'),
        ("[kafka]\nproperties = 3", "kafka.properties: expected a table of librdkafka properties, got an integer"),
        ("[kafka.properties]\n'group.id' = 'x'", "group.id is not yours to set: set kafka.group"),
        ("[kafka.consumer_properties]\nisolation.level = 'x'", "isolation.level is not yours to set"),
        ("[kafka.properties]\na = [1]", "a: expected a string, a number or a boolean, got an array"),
        ("[avro]\nregistry = 'registry:8081'", "avro: registry: expected a URL that starts with http:// or https://"),
        ("[avro.properties]\nmax_retries = 1", "avro: properties.max_retries: names have dots and no underscores"),
        ("[topics]\njournal = 'requests'", 'two topics have the name "requests"'),
        ("[topics]\nprefix = 'a b'", '"a brequests" cannot be the name of a topic'),
        ("[redis]\nurl = 'http://x'", "redis.url: expected a URL that starts with redis://"),
        ("[redis]\nprefix = '{a}'", "prefix has a brace"),
        ("[redis]\nurl = 'redis+sentinel://h/m'\ncluster = true", "sentinels, which a cluster has not"),
        ("[http]\nport = 70000", "http.port: expected an integer <= 65535"),
        ("[http]\ntoken = 3", "http.token: expected a string, got an integer"),
        ("[http]\nallowed_hosts = ['http://a']", 'http: allowed_hosts: "http://a" is not the name of a host: write'),
        ("[http]\nallowed_hosts = ['a:9464']", "without http:// and without a port"),
        ("[http]\nallowed_hosts = ['a.*']", '"a.*" is not the name of a host'),
        ("[http]\nallowed_hosts = ['']", '"" is not the name of a host'),
        ("[http]\nmax_connections = 0", "http.max_connections: expected an integer >= 1"),
        ("[processing]\nbreaker_share = nan", "processing.breaker_share: expected a number"),
        ("[limits]\nmax_depth = 5000", "limits.max_depth: expected an integer <= 200"),
        ("[tenants]\naccept_unknwon = true", "Did you mean accept_unknown?"),
        ("[tenants]\naccept_unknown = 'no'", "tenants.accept_unknown: expected a boolean, got a string"),
        ("[tenants.default]\neta = 0.7", "tenants.default: eta is 0.7"),
        ("[tenants.default]\neta = nan", "tenants.default: eta is nan"),
        ("[tenants.default]\nexpiry = '90 days'", "tenants.default.expiry: expected a duration like"),
        ("[tenants.default]\nexpiry = 0", "tenants.default.expiry: expected a duration above zero"),
        ("[tenants.default]\nexpiry = 1.5", "as an integer, got a float"),
        ("[tenants.default]\nlabels = [false, 1.5]", "tenants.default.labels: expected a boolean or an integer or a"),
        ("[tenants.default]\npositive = 'ture'", 'Did you mean "true"?'),
        ("[tenants.default]\nshadows = ['gforce']", "tenants.default.shadows: unknown value 'gforce'"),
        ("[tenants.default]\nschedule = [{ lambda = 1 }]", "tenants.default.schedule: "),
        ("[tenants.default]\nlambda = { grant = 1 }", 'λ is set for "grant", which is not a label'),
        ("[tenants.default]\non_expiry = 'label:flase'", 'Did you mean "label:false"?'),
        ("[tenants.default]\non_expiry = 'false'", 'on_expiry is "false": use one of "drop", "label:false"'),
        ("[tenants.default]\nexplore = 0.1", "explore is 0.1"),
        ("[tenants.default]\nfeedback = 'positive-only'", "needs explore"),
        ("[tenants.default]\nobjective = 'paper'", "is for exactly two groups"),
        (f"[tenants.default]\nseed = '{SEED}'", "tenants.default.seed: one seed for all tenants"),
        ("[tenants.bank]\nseed = 'xyz'", "tenants.bank: the seed is not hexadecimal"),
        ("[tenants.bank]\nseed = 'abcd'", "tenants.bank: the seed has 2 bytes"),
        ("[tenants.'my bank']\npolcy = 'mw'", 'tenants."my bank".polcy: unknown key: did you mean policy?'),
        ("[tenants.bank]\nprior = { group = 0 }", "prior group is 0"),
    ],
)
def test_a_problem_names_the_file_the_key_and_the_remedy(file: Any, text: str, message: str) -> None:
    path = file(text)
    found = problems_of(path)
    assert len(found) == 1
    assert found[0].startswith(f"{path}: ")
    assert message in found[0]


def test_a_problem_of_a_variable_names_the_variable() -> None:
    assert problems_of(None, {**SEEDED, "GFORCE_HTTP__PORT": "abc", "GFORCE_KAFKA__GRUP": "x"}) == [
        "GFORCE_KAFKA__GRUP: kafka.grup: unknown key: did you mean group?",
        "GFORCE_HTTP__PORT: http.port: expected an integer, got a string",
    ]


def test_a_variable_below_a_plain_value_is_refused(file: Any) -> None:
    found = problems_of(file("[kafka]\ngroup = 'a'"), {**SEEDED, "GFORCE_KAFKA__GROUP__NAME": "b"})
    assert "kafka.group is not a table" in found[0]


def test_all_problems_are_reported_at_once(file: Any) -> None:
    text = "[kafka]\ngrup = 'a'\nprotocol = 1\n[http]\nport = -1\n[tenants.default]\neta = 'x'\n[tenants.a]\netaa = 1"
    assert len(problems_of(file(text), {})) == 6  # these five, and the seed


def test_what_is_wrong_in_the_default_is_not_repeated_for_those_who_inherit_it(file: Any) -> None:
    assert len(problems_of(file("[tenants.default]\neta = 0.7\n[tenants.a]\n[tenants.b]"))) == 1


def test_a_file_that_is_missing_or_not_toml_or_not_text_is_a_problem(tmp_path: Path, file: Any) -> None:
    assert "cannot be read" in problems_of(tmp_path / "none.toml")[0]
    assert "not TOML" in problems_of(file("kafka = "))[0]
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    assert "not UTF-8 at byte 0" in problems_of(tmp_path / "bytes.toml")[0]


_KEYS = [
    f"{section.name}__{field.encode_name}" if section.name != "tenants" else f"tenants__{name}__{field.encode_name}"
    for section in msgspec.structs.fields(Config)
    for name in ("default", "bank")
    for field in msgspec.structs.fields(TenantTable if section.name == "tenants" else section.type)
]
_TEXTS = st.sampled_from(
    ["", "0", "-1", "1", "1.5", "nan", "inf", "true", "[]", "{}", "[1]", "['a', 'a']", "{ a = 1 }", "[{ a = 1 }]",
     "1979-05-27", "'x'", "auto", "90d", "999999999999999d", "9223372036854775808", "x\ny = 1", "{ group = {} }",
     "[{ from_labels = 1 }, { from_labels = 1 }]", "{ label = { a = 1 } }", "\ud800", "\x00", "redis://[", "__"]
) | st.text(max_size=5)  # fmt: skip
_NAMES = st.sampled_from(_KEYS) | st.sampled_from(["", "_", "__", "kafka__", "tenants__", "__x", "tenants__a__b__c__d"])


@given(st.dictionaries(_NAMES.map(lambda name: f"GFORCE_{name}".upper()), _TEXTS, max_size=4))
def test_whatever_the_environment_holds_only_config_errors_are_raised(environment: dict[str, str]) -> None:
    try:
        config = load(None, {**SEEDED, **environment})
    except ConfigError as refused:
        assert refused.problems  # noqa: PT017
    else:
        assert json.dumps(shown(config))
        assert digest(tenant_settings(config, "bank"))


# Seeds


def test_a_missing_seed_is_refused_with_the_remedy() -> None:
    (found,) = problems_of(None, {})
    assert "processing.seed is missing" in found
    assert "gforce doctor --new-seed" in found
    assert "openssl rand -hex 32" in found


def test_a_bad_seed_is_refused_without_being_quoted() -> None:
    (found,) = problems_of(None, {"GFORCE_PROCESSING__SEED": HUNTER})
    assert "not hexadecimal" in found
    assert HUNTER not in found


@pytest.mark.parametrize(
    "text",
    [
        f"[avro]\nregistry = 'https://me:{HUNTER}@registry'",
        f"[avro]\nproperties.proxy = 'http://me:{HUNTER}@proxy'",
        f"[avro]\nproperties.basic_auth_user_info = 'me:{HUNTER}'",
    ],
)
def test_a_secret_where_it_would_print_is_refused_without_being_quoted(file: Any, text: str) -> None:
    (found,) = problems_of(file(text))
    assert "avro: " in found
    assert HUNTER not in found


def test_the_registry_s_properties_can_come_from_one_variable() -> None:
    table = '{ "basic.auth.user.info" = "me:0123", "timeout" = 2 }'
    config = load(None, {**SEEDED, "GFORCE_AVRO__REGISTRY": "http://r:8081", "GFORCE_AVRO__PROPERTIES": table})
    assert config.avro.properties.reveal() == {"basic.auth.user.info": "me:0123", "timeout": "2"}


def test_no_master_seed_is_needed_when_every_tenant_has_its_own(file: Any) -> None:
    config = load(file(f"[tenants]\naccept_unknown = false\n[tenants.bank]\nseed = '{SEED}'"), {})
    assert tenant_settings(config, "bank").seed_bytes == bytes.fromhex(SEED)


def test_every_tenant_has_a_seed_of_its_own_that_never_changes() -> None:
    config = load(None, SEEDED)
    one, other = tenant_settings(config, "bank").seed_bytes, tenant_settings(config, "shop").seed_bytes
    assert one != other
    assert len(one) == 32
    # Frozen: with another derivation no old decision could be recomputed.
    assert one.hex() == "a5fd0799c84d17621725b890d366a0678c0b48e985732c8819a6e738066493cd"


# Tenants


def test_a_tenant_inherits_from_the_default_field_by_field(file: Any) -> None:
    path = file("[tenants.default]\neta = 0.1\nkeep = 5\nlambda = { true = 2 }\n[tenants.bank]\neta = 0.2\nlambda = 3")
    config = load(path, SEEDED)
    bank, other = tenant_settings(config, "bank").settings, tenant_settings(config, "other").settings
    assert (bank.policy.eta, bank.keep, bank.policy.balance[0].fairness) == (0.2, 5, 3.0)
    assert (other.policy.eta, other.keep, other.policy.balance[0].fairness) == (0.1, 5, {"true": 2.0})


def test_an_unknown_tenant_is_refused_where_none_are_accepted(file: Any) -> None:
    config = load(file("[tenants]\naccept_unknown = false\n[tenants.bank]"), SEEDED)
    assert tenant_settings(config, "bank")
    with pytest.raises(UnknownTenantError, match="name it there"):
        tenant_settings(config, "other")


def test_who_turns_exploration_off_does_not_inherit_its_rate(file: Any) -> None:
    text = "[tenants.default]\nfeedback = 'positive-only'\nexplore = 0.1\n[tenants.bank]\nfeedback = 'all'"
    config = load(file(text), SEEDED)
    assert tenant_settings(config, "bank").settings.explore is None
    assert tenant_settings(config, "other").settings.explore == 0.1


def test_a_schedule_changes_only_what_it_names(file: Any) -> None:
    text = (
        "[tenants.default]\nlambda = 0.5\nlambda_regret = 2\n"
        "schedule = [{ from_labels = 10, lambda = 1 }, { from_labels = 20, lambda_regret = 3 }]"
    )
    balance = tenant_settings(load(file(text), SEEDED), "bank").settings.policy.balance
    assert balance == (Balance(0.5, 2.0, 0), Balance(1.0, 2.0, 10), Balance(1.0, 3.0, 20))


def test_shadows_share_the_balance_and_the_policy_in_force_is_none_of_them(file: Any) -> None:
    text = "[tenants.default]\npolicy = 'mw'\nlambda = 2\nshadows = ['mw', 'gforce/mixture']"
    settings = tenant_settings(load(file(text), SEEDED), "bank").settings
    assert settings.shadows == (Policy(objective="mixture", balance=(Balance(2.0),)),)


def test_a_tenant_has_all_that_its_table_says(file: Any) -> None:
    text = (
        "[tenants.bank]\nlabels = [0, 1]\npositive = 1\ngroups = ['A', true]\nwindow = 3\nbucket = '1h'\n"
        "expiry = '2d'\non_expiry = 'label:0'\nparking = '5m'\nduplicate_horizon = 250\n"
        "prior = { group = 2 }"
    )
    tenant = tenant_settings(load(file(text), SEEDED), "bank")
    settings = tenant.settings
    assert (settings.labels, settings.positive, settings.groups) == (("0", "1"), "1", ("A", "true"))
    assert (settings.window, settings.bucket, settings.prior) == (3, 3_600_000, Prior(group=2.0))
    assert (tenant.expiry, tenant.on_expiry, tenant.parking) == (2 * 86_400_000, "0", 300_000)
    assert tenant.duplicate_horizon == 250


# The digest


def test_the_canonical_form_holds_the_settings_and_a_commitment_but_no_seed() -> None:
    tenant = tenant_settings(load(None, SEEDED), "bank")
    text = canonical(tenant)
    document = json.loads(text)
    assert text == json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    assert tenant.seed.reveal().encode() not in text
    assert SEED.encode() not in text
    assert len(document["seed_commitment"]) == 64
    assert msgspec.convert(document["settings"], type(tenant.settings)) == tenant.settings


def test_the_digest_is_frozen() -> None:
    """If this fails, every decision of an unchanged configuration would seem to come from a changed one."""
    assert digest(tenant_settings(load(None, SEEDED), "bank")) == "7a50b27105d878f5"


@pytest.mark.parametrize(
    "line",
    ["eta = 0.2", "lambda = 2", "expiry = '1d'", "on_expiry = 'label:true'", "parking = 1", "duplicate_horizon = 1",
     "seed = 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'", "groups = ['A']", "shadows = []"],
)  # fmt: skip
def test_every_choice_changes_the_digest(file: Any, line: str) -> None:
    changed = load(file(f"[tenants.bank]\n{line}"), SEEDED)
    plain = load(None, SEEDED)
    assert digest(tenant_settings(changed, "bank")) != digest(tenant_settings(plain, "bank"))


@pytest.mark.parametrize("line", ["lambda = 1", "expiry = 7776000000", "labels = [false, true]", "eta = 35e-2"])
def test_another_spelling_does_not_change_the_digest(file: Any, line: str) -> None:
    spelt = load(file(f"[tenants.default]\n{line}"), SEEDED)
    assert digest(tenant_settings(spelt, "bank")) == digest(tenant_settings(load(None, SEEDED), "bank"))


# Secrets

_PROPERTIES = [
    "sasl.password", "ssl.key.password", "ssl.keystore.password", "sasl.oauthbearer.client.secret", "ssl.key.pem",
    "sasl.oauthbearer.config", "basic.auth.user.info", "sasl.oauthbearer.assertion.private.key.passphrase",
]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        f"[http]\ntoken = '{HUNTER}'",
        f"[redis]\nurl = 'redis://:{HUNTER}@h:1/0'",
        f"[redis]\nurl = 'rediss://me:{HUNTER}@h:1/0'",
        f"[redis]\nurl = 'redis://me:a@{HUNTER}@h:1/0'",
        f"[redis]\nurl = 'redis://me:a:{HUNTER}@h:1/0'",
        f"[redis]\nurl = 'redis://h:1/0?a=1&password={HUNTER}'",
        f"[redis]\nurl = 'redis://h:1/0?password=a@{HUNTER}'",
        f"[redis]\nurl = 'redis+sentinel://me:{HUNTER}@h:1,i:1/m/0?sentinel_password={HUNTER}'",
        f"[redis]\nurl = 'rediss+sentinel://h,i/m?sentinel_username=me&sentinel_password=a@{HUNTER}'",
        f"[redis]\nurl = 'unix://me:{HUNTER}@/run/redis.sock'",
        f"[redis]\nurl = 'redis://[me:{HUNTER}@h'",
        f"[redis]\nurl = 'redis://me:{HUNTER}/x@h:1/0'",
        f"[redis]\nurl = 'redis://{HUNTER}@h:1/0'",
        f"[redis]\nurl = 'redis://me:a#{HUNTER}@h:1/0'",
        f"[redis]\nurl = 'redis://me:a?{HUNTER}@h:1/0'",
        *(f"[kafka.properties]\n'{name}' = '{HUNTER}'" for name in _PROPERTIES),
        f"[kafka.producer_properties]\nsasl.password = '{HUNTER}'",
        f"[avro.properties]\n'basic.auth.user.info' = 'me:{HUNTER}'",
        f"[avro.properties]\nbearer.auth.token = '{HUNTER}'",
    ],
)
def test_a_secret_never_prints(file: Any, text: str) -> None:
    config = load(file(text), SEEDED)
    for printed in (repr(config), str(config), f"{config}", json.dumps(shown(config)), repr(config.redis.url)):
        assert HUNTER not in printed
        assert SEED not in printed


def test_tenants_seeds_never_print(file: Any) -> None:
    config = load(file("[tenants.bank]\nseed = '" + "ab" * 16 + "'"), SEEDED)
    tenant = tenant_settings(config, "bank")
    assert "abab" not in repr(config) + repr(tenant) + json.dumps(shown(config))


def test_what_is_no_secret_is_shown(file: Any) -> None:
    text = "[redis]\nurl = 'redis://me:x@cache:6379/0'\n[kafka.properties]\nsecurity.protocol = 'SSL'\nlinger.ms = 5"
    seen = shown(load(file(text), SEEDED))
    assert seen["redis"]["url"] == "redis://me:********@cache:6379/0"
    assert seen["kafka"]["properties"] == {"security.protocol": "SSL", "linger.ms": "5"}
    assert seen["tenants"]["default"]["expiry"] == "90d"
    assert seen["processing"]["seed"] == "********"


def test_secrets_are_equal_by_what_they_hide() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("redis://a") != RedisUrl("redis://a")
    assert len({Secret("a"), Secret("a")}) == 1
    assert Properties({"a": "1"}) == Properties({"a": "1"}) != Properties()
    assert len({Properties({"a": "1"}), Properties({"a": "1"})}) == 1


def test_properties_are_texts_for_librdkafka(file: Any) -> None:
    text = "[kafka.properties]\na = true\nb = 1\nc = 0.5\nd = 'x'\ne.f.g = false"
    assert load(file(text), SEEDED).kafka.properties.reveal() == {
        "a": "true", "b": "1", "c": "0.5", "d": "x", "e.f.g": "false",
    }  # fmt: skip


@given(st.integers(1, 2**53 - 1))
def test_a_duration_comes_back_as_it_is_shown(milliseconds: int) -> None:
    assert Duration.read(repr(Duration(milliseconds))) == milliseconds
