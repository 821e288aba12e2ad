from examples.time_series import main


def test_it_runs_and_adaptation_helps(capsys):
    accuracies = main(steps=100)
    assert "+TSA" in capsys.readouterr().out
    assert accuracies["+TSA"] > accuracies["source-only"] + 0.1
