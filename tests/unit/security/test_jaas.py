from __future__ import annotations

import pytest

from minikafka.security.jaas import (
    DIGEST_MODULE,
    MODULES,
    PLAIN_MODULE,
    SCRAM_MODULE,
    InvalidJaas,
    parse,
    parse_for,
    parse_section,
)

SECRET = "s3cr3t-passw0rd"


def test_entry_has_the_module_and_the_options_of_its_text():
    entry = parse(f'{SCRAM_MODULE} required username="admin" password="{SECRET}";')

    assert entry.module == SCRAM_MODULE
    assert entry.options == {"username": "admin", "password": SECRET}


def test_entry_may_span_lines_with_comments_and_single_quotes():
    text = f"""{PLAIN_MODULE} Required  // the module
      username='admin' /* a
      comment */ password='a"b' serviceName=kafka
      ;"""

    assert parse(text).options == {"username": "admin", "password": 'a"b', "serviceName": "kafka"}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"a\"b", 'a"b'),
        (r"a\\b", "a\\b"),
        (r"tab\tline\n", "tab\tline\n"),
        (r"\101\60", "A0"),
        (r"\777", "?7"),
        ("a=b;c//d,é", "a=b;c//d,é"),
        ("", ""),
    ],
)
def test_quoted_value_is_read_with_its_escapes(written, read):
    assert parse(f'{PLAIN_MODULE} required password="{written}";').options == {"password": read}


def test_users_of_plain_are_the_options_with_the_prefix_user():
    entry = parse(
        f'{PLAIN_MODULE} required username="b" password="x" user_b="x" user_alice.z="y" '
        'user_c-d="z";'
    )

    assert entry.plain_users == {"b": "x", "alice.z": "y", "c-d": "z"}


def test_users_of_another_module_are_no_users_of_plain():
    assert parse(f'{SCRAM_MODULE} required user_bob="x";').plain_users == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "names no login module"),
        ("  // nothing", "names no login module"),
        (f'{PLAIN_MODULE} required password="{SECRET}"', "semicolon"),
        (f'{PLAIN_MODULE} password="{SECRET}";', "control flag"),
        (f'{PLAIN_MODULE} mandatory password="{SECRET}";', "control flag"),
        (f'{PLAIN_MODULE} required username="u" password={SECRET}!;', "unexpected character"),
        (f'{PLAIN_MODULE} required username="u" password="{SECRET};', "unexpected character"),
        (f'{PLAIN_MODULE} required username="u" password "{SECRET}";', "after option 'username'"),
        (f'{PLAIN_MODULE} required = "{SECRET}";', "after the control flag"),
        (f'{PLAIN_MODULE} required username="u" password=;', "after option 'username'"),
        (f"{PLAIN_MODULE} required; {PLAIN_MODULE} required;", "2 login modules"),
    ],
)
def test_malformed_text_is_refused_with_the_reason_and_without_a_secret(text, expected):
    with pytest.raises(InvalidJaas, match=expected) as refused:
        parse(text)

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(("mechanism", "module"), list(MODULES.items()))
def test_each_mechanism_needs_its_own_module(mechanism, module):
    assert parse_for(mechanism, f"{module} required;").module == module
    with pytest.raises(InvalidJaas, match=f"the one of {mechanism}"):
        parse_for(mechanism, "com.sun.security.auth.module.JndiLoginModule required;")


def test_repr_of_an_entry_has_no_secret():
    assert SECRET not in repr(parse(f'{PLAIN_MODULE} required password="{SECRET}";'))


FILE = f"""
Server {{
  {DIGEST_MODULE} required user_super="{SECRET}" user_bob="bob }}; secret";
}};
Client {{ {DIGEST_MODULE} required username="bob" password="bob }}; secret"; }};
"""


def test_section_of_a_file_has_the_options_of_its_module():
    server, client = parse_section(FILE, "Server"), parse_section(FILE, "Client")

    assert server is not None
    assert server.users == {"super": SECRET, "bob": "bob }; secret"}
    assert server.plain_users == {}
    assert client is not None
    assert client.options == {"username": "bob", "password": "bob }; secret"}
    assert parse_section(FILE, "KafkaServer") is None
    assert parse_section("// nothing", "Server") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FILE + FILE, "one section Server"),
        (f"Server {{ {DIGEST_MODULE} required; {DIGEST_MODULE} required; }};", "one login module"),
        ("Server { };", "one login module"),
        (f'Server {{ {DIGEST_MODULE} required user_a="{SECRET}"; }}', "does not end with };"),
        (f'Server {{ {DIGEST_MODULE} required user_a="{SECRET}";', "has no section"),
        (f'{DIGEST_MODULE} required user_a="{SECRET}";', "has no section"),
        (f'Server {{ {DIGEST_MODULE} required user_a="{SECRET}" }};', "semicolon"),
    ],
)
def test_file_without_whole_sections_is_refused_without_its_secrets(text, reason):
    with pytest.raises(InvalidJaas, match=reason) as refused:
        parse_section(text, "Server")
    assert SECRET not in str(refused.value)
