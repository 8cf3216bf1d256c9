"""The picture that began this project: no log file, GPU 3 at 100 % with 0 MiB, seven GPUs at zero."""

from __future__ import annotations

import subprocess

from tests.e2e.product import Product
from tests.fakes.gpus import FakeGpus


def test_a_gpu_at_100_pct_with_0_mib_and_no_holder_refuses_the_start_with_evidence(
    product: Product, fake_gpus: FakeGpus
) -> None:
    fake_gpus.set(3, util=100, used=0, power=125)
    done = product.cli("start", f"gpubox:{product.workspace}", "--", "/bin/sh", "-c", "echo step=1 loss=5; sleep 60")
    assert done.returncode == 6, (done.returncode, done.stderr)
    assert "GPU 3" in done.stderr
    [run] = product.get("/runs")["runs"]
    assert (run["verdict"], run["attempt"], run["final"]) == ("stale_process", 0, True)
    assert product.trainers(run["id"]) == [] and product.attempts(run["id"]) == []
    why = product.cli("why", run["id"]).stdout
    assert "GPU 3" in why and "100" in why and "0" in why and "stale_process" in why


def test_an_adopted_run_whose_process_is_gone_and_whose_log_never_came_is_no_log_beside_a_stale_gpu(
    product: Product, fake_gpus: FakeGpus
) -> None:
    by_hand = subprocess.Popen(["sleep", "600"], start_new_session=True)
    log = product.workspace / "never.log"
    try:
        done = product.cli("adopt", f"gpubox:{product.workspace}", "--pid", str(by_hand.pid), "--log", str(log))
        assert done.returncode == 0, done.stderr
    finally:
        fake_gpus.set(3, util=100, used=0, power=125)
        by_hand.kill()
        by_hand.wait()
    [run] = product.get("/runs")["runs"]
    final = product.wait_final(run["id"])
    assert (final["verdict"], final["kind"]) == ("no_log", "adopted")
    stale = [one for one in product.incidents(run["id"]).values() if one["verdict"] == "stale_process"]
    assert [one["state"] for one in stale] == ["open"]
    why = product.cli("why", run["id"]).stdout
    assert "no_log" in why and "stale_process" in why and "GPU 3" in why
    assert product.records(run["id"], "action") == []
