from examples.embeddings import main


def test_it_runs_and_adaptation_helps(capsys):
    accuracies = main(steps=150)
    assert "+TSA" in capsys.readouterr().out
    assert accuracies["+TSA"] > accuracies["source-only"]
