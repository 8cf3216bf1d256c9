"""Layers, origins, mistakes and secrets of the configuration."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dflash_supervise.config import ConfigError, Settings, load, problems, settings_rows
from dflash_supervise.config.schema import user_config_file


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def load_text(tmp_path: Path, text: str, **environ: str) -> Settings:
    return load(files=(write(tmp_path / "c.toml", text),), environ=environ)


def test_each_layer_wins_over_the_one_before_and_its_origin_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.chdir(tmp_path)
    user = write(
        user_config_file(), "[daemon]\nport = 1\nhost = '127.0.0.2'\n[alerts]\nreminders = 9\n[policy]\ngrace_s = 5\n"
    )
    here = write(tmp_path / "dflash.toml", "[daemon]\nport = 2\n[alerts]\nreminders = 8\n")
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "xdg"), "DFLASH_SUPERVISE_ALERTS_REMINDERS": "7"}
    settings = load(
        environ={**environ, "DFLASH_SUPERVISE_DAEMON_PORT": "3"}, flags={"daemon.port": 4, "daemon.host": None}
    )
    assert (settings.daemon.port, settings.daemon.host, settings.alerts.reminders) == (4, "127.0.0.2", 7)
    assert settings.policy == {"grace_s": 5.0}
    assert settings.origins["daemon.port"] == "flag --port"
    assert settings.origins["alerts.reminders"] == "environment DFLASH_SUPERVISE_ALERTS_REMINDERS"
    assert settings.origins["daemon.host"] == str(user)
    assert settings.files == (str(user), str(here))


@pytest.mark.parametrize(
    ("text", "key", "fix"),
    [
        ("[daemon]\nprot = 1\n", "daemon.prot", "did you mean port?"),
        ("[deamon]\nport = 1\n", "deamon", "did you mean daemon?"),
        ("[policy]\nmax_restart = 1\n", "policy.max_restart", "did you mean max_restarts?"),
        ("[daemon]\nxyzzy = 1\n", "daemon.xyzzy", "known: host, port"),
    ],
)
def test_an_unknown_key_is_an_error_with_file_key_and_guess(tmp_path: Path, text: str, key: str, fix: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_text(tmp_path, text)
    assert (error.value.where, error.value.key) == (str(tmp_path / "c.toml"), key)
    assert fix in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[daemon]\nport = '8000'\n", "must be a whole number"),
        ("[daemon]\nport = true\n", "must be a whole number"),
        ("[daemon]\nport = 70000\n", "use 1 to 65535"),
        ("[alerts]\ninterval_s = -1\n", "cannot be negative"),
        ("[alerts]\ninterval_s = inf\n", "alerts.interval_s: is inf .use a number from 0 to 31622400"),
        ("[store]\nkeep_hours = nan\n", "store.keep_hours: is nan .use a number from 0 to"),
        ("[ssh]\nconnect_timeout_s = 1e300\n", "ssh.connect_timeout_s: is 1e.300 .use a number from 0 to"),
        (f"[alerts]\nreminders = {'9' * 5000}\n", "is not TOML: Exceeds the limit"),
        (f"[daemon]\nport = {'[' * 3000}{']' * 3000}\n", "is nested too deeply"),
        (f"[daemon]\nport{'.a' * 3000} = 1\n", "is nested too deeply"),
        (f"[alerts]\nreminders = 0x{'f' * 5000}\n", "holds a number of too many digits"),
        ("[policy]\npreset = 'bold'\n", "auto, careful, observe"),
        ("[policy]\ngrace_s = -1\n", "policy.grace_s: is -1.0 .it cannot be negative"),
        ("[policy]\ngrace_s = inf\n", "policy.grace_s: is inf .use seconds from 0 to 31622400"),
        ("[policy]\nsuspect_steps = nan\n", "policy.suspect_steps: is nan .use a number from 0 to 1000"),
        (f"[policy]\ngrace_s = 1{'0' * 400}\n", "policy.grace_s: is too large a number"),
        ("[daemon]\nallowed_hosts = 'x'\n", "a list of strings"),
        ("[slack]\nwebhook = { file = 'a', env = 'B' }\n", "must be a string"),
        ("daemon = 3\n", "must be a table"),
        ("[daemon\n", "is not TOML"),
    ],
)
def test_a_wrong_value_says_what_would_be_right(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_text(tmp_path, text)


def test_variables_are_checked_like_keys(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"DFLASH_SUPERVISE_DAEMON_PROT.*did you mean port"):
        load_text(tmp_path, "", DFLASH_SUPERVISE_DAEMON_PROT="1")
    with pytest.raises(ConfigError, match="whole number"):
        load_text(tmp_path, "", DFLASH_SUPERVISE_DAEMON_PORT="many")
    settings = load_text(
        tmp_path,
        "",
        DFLASH_SUPERVISE_STATE_DIR="/s",
        DFLASH_SUPERVISE_SSH_CONFIG="/c",
        DFLASH_SUPERVISE_START_NO_TMUX="yes",
        DFLASH_SUPERVISE_DAEMON_ALLOWED_HOSTS="a:1, b:2",
        DFLASH_SUPERVISE_CONFIG="not a setting",
    )
    assert settings.state_dir == Path("/s") and settings.ssh.config_file == "/c" and settings.start.no_tmux
    assert settings.daemon.allowed_hosts == ("a:1", "b:2")


def test_a_daemon_reads_the_files_that_its_starter_read(tmp_path: Path) -> None:
    file = write(tmp_path / "elsewhere.toml", "[daemon]\nport = 99\n")
    settings = load(environ={"DFLASH_SUPERVISE_FILES": str(file), "DFLASH_SUPERVISE_CONFIG": "/not/read"})
    assert settings.daemon.port == 99
    assert load(environ={"DFLASH_SUPERVISE_FILES": ""}).files == ()


def test_a_missing_named_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(files=(tmp_path / "none.toml",), environ={})


def test_a_secret_is_read_when_used_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "https://hooks.example/T0/B0/abcdef"
    kept = write(tmp_path / "webhook", secret + "\n")
    monkeypatch.setenv("HOOK", secret)
    command = f"{{ command = [{sys.executable!r}, '-c', \"print({secret!r})\"] }}"
    for source in (f"'{secret}'", f"{{ file = '{kept}' }}", "{ env = 'HOOK' }", command):
        settings = load_text(tmp_path, f"[slack]\nwebhook = {source}\n")
        assert settings.slack.webhook is not None
        assert settings.slack.webhook.reveal() == secret
        shown = repr(settings) + str(settings.slack.webhook) + repr(settings.slack)
        if "command" not in source:
            shown += str(settings_rows(settings))
        assert "abcdef" not in shown


@pytest.mark.parametrize(
    "source",
    [
        "{ file = '/not/there' }",
        "{ env = 'NOT_SET_ANYWHERE' }",
        "{ command = ['/bin/false'] }",
        "{ command = ['/not/there'] }",
    ],
)
def test_a_secret_without_a_value_names_its_key(tmp_path: Path, source: str) -> None:
    settings = load_text(tmp_path, f"[slack]\nwebhook = {source}\n")
    assert settings.slack.webhook is not None
    with pytest.raises(ConfigError, match=r"slack\.webhook"):
        settings.slack.webhook.reveal()


def test_every_setting_is_a_row_with_value_and_origin(tmp_path: Path) -> None:
    rows = {key: (value, origin) for key, value, origin in settings_rows(load_text(tmp_path, "[daemon]\nport = 5\n"))}
    assert rows["daemon.port"] == ("5", str(tmp_path / "c.toml"))
    assert rows["alerts.reminders"] == ("3", "default")
    assert rows["policy.grace_s"] == ("30.0", "default")


def test_the_example_file_is_read_without_a_complaint() -> None:
    example = Path(__file__).parents[3] / "templates" / "examples" / "dflash.toml"
    settings = load(files=(example,), environ={})
    assert settings.daemon.port == 8000


def test_reading_the_configuration_imports_nothing_heavy() -> None:
    code = (
        "import sys, dflash_supervise.config, dflash_supervise.daemon.spawn\n"
        "print([m for m in ('paramiko', 'sqlalchemy', 'fastapi', 'httpx', 'libtmux') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_file_is_wrong_by_itself_also_where_a_later_layer_hides_it(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[daemon]\nport = "x"\n')
    with pytest.raises(ConfigError, match=r"daemon\.port.*whole number"):
        load(files=(file,), environ={"DFLASH_SUPERVISE_DAEMON_PORT": "8001"})


def test_what_the_system_says_is_told_without_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "latin.toml").write_bytes(b"# \xe4\n")
    (tmp_path / "slack.toml").write_text('[slack]\nwebhook = { command = ["/nowhere/at/all"] }\n')
    (tmp_path / "file.toml").write_text('[slack]\nwebhook = { file = "/nowhere/at/all" }\n')
    said = []
    for name in ("absent.toml", "latin.toml"):
        with pytest.raises(ConfigError) as error:
            load(files=(tmp_path / name,), environ={})
        said.append(error.value.message)
    for name in ("slack.toml", "file.toml"):
        secret = load(files=(tmp_path / name,), environ={}).slack.webhook
        assert secret is not None
        with pytest.raises(ConfigError) as error:
            secret.reveal()
        said.append(error.value.message)
    assert [text for text in said if "Errno" in text or "codec" in text] == []
    assert "cannot be read: No such file or directory" in said[0] and "no UTF-8 text" in said[1]
    assert all("No such file or directory" in text for text in said[2:])


def test_a_wrong_preset_names_its_key_once() -> None:
    with pytest.raises(ConfigError) as error:
        load(files=(), environ={"DFLASH_SUPERVISE_POLICY_PRESET": "bold"})
    assert error.value.message.count("policy.preset") == 1


def test_everything_that_is_wrong_is_told_at_once_and_loading_stops_at_the_first(tmp_path: Path) -> None:
    first = write(
        tmp_path / "a.toml",
        "[daemon]\nprot = 1\nport = 70000\nhost = 5\n[deamon]\nport = 1\n[policy]\npreset = 'bold'\ngrace_s = -1\n"
        "[alerts]\nreminders = 2\n",
    )
    torn = write(tmp_path / "b.toml", "[daemon\n")
    environ = {"DFLASH_SUPERVISE_NONE_SUCH": "1", "DFLASH_SUPERVISE_ALERTS_REMINDERS": "many"}
    found = problems(files=(first, torn, tmp_path / "c.toml"), environ=environ)
    assert [(Path(one.where).name, one.key) for one in found] == [
        ("a.toml", "daemon.prot"),
        ("a.toml", "daemon.port"),
        ("a.toml", "daemon.host"),
        ("a.toml", "deamon"),
        ("a.toml", "policy.preset"),
        ("a.toml", "policy.grace_s"),
        ("b.toml", ""),
        ("c.toml", ""),
        ("environment DFLASH_SUPERVISE_NONE_SUCH", "none"),
        ("environment DFLASH_SUPERVISE_ALERTS_REMINDERS", "alerts.reminders"),
    ]
    assert all("\n" not in one.message for one in found)
    with pytest.raises(ConfigError) as error:
        load(files=(first,), environ={})
    assert error.value.key == "daemon.prot"
    assert problems(files=(), environ={}) == ()


def test_a_range_holds_also_where_a_later_layer_hides_the_value(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="use 1 to 65535"):
        load_text(tmp_path, "[daemon]\nport = 70000\n", DFLASH_SUPERVISE_DAEMON_PORT="8000")


def test_a_secret_in_a_variable_that_is_no_json_is_refused_and_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"DFLASH_SUPERVISE_SLACK_WEBHOOK: slack\.webhook: is not JSON") as error:
        load_text(tmp_path, "", DFLASH_SUPERVISE_SLACK_WEBHOOK='{"file": hidden')
    assert "hidden" not in str(error.value) and error.value.__cause__ is None
