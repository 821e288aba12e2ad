from examples import own_loop


def test_tsa_adapts_where_source_only_does_not(capsys):
    plain = own_loop.main(steps=100, use_tsa=False)
    adapted = own_loop.main(steps=100, use_tsa=True)
    assert adapted > plain + 0.1
    assert "TSA: " in capsys.readouterr().out
