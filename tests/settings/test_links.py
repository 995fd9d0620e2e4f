"""Links and the page's address in the configuration."""

import pytest

from vllm_watch import config
from vllm_watch.errors import ConfigError


def loaded(tmp_path, text):
    file = tmp_path / "c.yaml"
    file.write_text(text)
    return config.load(file, environ={})


def test_messages_link_to_where_people_reach_the_page(tmp_path):
    """Unless they have an address of their own."""
    found = loaded(tmp_path, "external_url: https://watch.example/gpu-7/\n")
    assert found.external_url == "https://watch.example/gpu-7"
    assert found.notifications_linked.page_url == "https://watch.example/gpu-7"
    own = "external_url: https://a.example\nnotifications: {page_url: 'https://b.example'}\n"
    assert loaded(tmp_path, own).notifications_linked.page_url == "https://b.example"
    assert loaded(tmp_path, "listen: 127.0.0.1:1\n").notifications_linked.page_url is None


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("external_url: https://watch.example/?a=1\n", "has a query or a fragment"),
        ("external_url: watch.example\n", "is not an http"),
        ("links: [{name: Logs, url: 'https://l.example/{container}'}]\n", "has {container}"),
        ("links: [{name: '', url: 'https://l.example/'}]\n", "links[0].name"),
    ],
)
def test_what_leads_nowhere_is_refused(tmp_path, text, cause):
    """With the key and a remedy."""
    with pytest.raises(ConfigError) as error:
        loaded(tmp_path, text)
    assert cause in str(error.value)


def test_links_have_names(tmp_path):
    """And may name what is known of a target."""
    text = "links: [{name: Grafana, url: 'https://g.example/d?var={target}&from={from}&to={to}'}]\n"
    assert loaded(tmp_path, text).templates == {
        "Grafana": "https://g.example/d?var={target}&from={from}&to={to}"
    }
