"""Facts of dispatch that name the multiprocessors of the device, in C and in Python."""

from tests.launcher.example_package import Tensor


def test_a_fact_may_name_the_multiprocessors(world, capsys):
    x, taken = Tensor(), []
    for tiles in (6, 7, 9, 10):  # The fake driver's devices have six.
        world.package.waves(x, 64 * tiles)
        taken.append(world.driver.last.key)
        world.package.explain("waves", x, 64 * tiles)
    assert taken == ["waves.one", "waves.half", "waves.half", "waves.any"]
    shown = capsys.readouterr().out
    assert "cdiv(n, 64) <= num_sms does not hold (num_sms = 6, n = 448)" in shown
    assert "cdiv(n, 64) <= 3 * num_sms // 2 does not hold (num_sms = 6, n = 640)" in shown
    for tiles, row in ((132, "<= num_sms"), (198, "<= 3*num_sms//2"), (199, "")):
        world.package.explain("waves", x, 64 * tiles, arch="sm_90")
        (line,) = (line for line in capsys.readouterr().out.splitlines() if line.endswith(": taken"))
        assert line.endswith(f"{row}: taken") and ("num_sms" in line) == bool(row)


def test_the_multiprocessors_of_facts(world):
    """Those of the call's device, or of one that is made up."""
    launcher = world.package.dispatch._launcher
    index = world.package.dispatch.KERNELS.index("waves")
    for num_sms, tiles, expected in ((0, 7, (0, 1)), (7, 7, (1, 1)), (132, 199, (0, 0)), (132, 198, (0, 1))):
        facts = launcher._facts(index, num_sms, Tensor(), 64 * tiles)[1]
        assert facts[-2:] == expected, (num_sms, tiles)
