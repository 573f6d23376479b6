"""A study of somebody else is published without files from outside its folder and without scripts."""

import pytest

from robustassay.report.site.studies import find_studies

PLAIN = '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><path d="M0 0"/><use xlink:href="#a"/></svg>'
ACTIVE = [
    "<svg><script>alert(1)</script></svg>",
    "<svg><SCRIPT href='x'/></svg>",
    "<svg:svg><svg:script>1</svg:script></svg:svg>",
    "<svg onload='alert(1)'/>",
    "<svg><path\nonclick = 'x'/></svg>",
    "<svg/onload=alert(1)>",
    "<svg><a href='javascript:alert(1)'/></svg>",
    "<svg><a xlink:href='https://example.org/x'/></svg>",
    "<svg><foreignObject/></svg>",
    "<svg><animate attributeName='href' to='x'/></svg>",
    "<!DOCTYPE svg [<!ENTITY x 'y'>]><svg/>",
]


@pytest.fixture
def study(tmp_path):
    folder = tmp_path / "studies" / "one"
    (folder / "figures").mkdir(parents=True)
    (folder / "study.md").write_text("# A study\n")
    (folder / "figures" / "plain.svg").write_text(PLAIN)
    return folder


def test_links_do_not_publish_files_from_outside(study, tmp_path):
    secret = tmp_path / "secret.csv"
    secret.write_text("source,a\nb,1\n")
    (study / "results.csv").symlink_to(secret)
    (study / "transfer-x.csv").symlink_to(secret)
    (study / "figures" / "a.png").symlink_to(secret)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "b.csv").write_text("private")
    (study / "tables").symlink_to(tmp_path / "elsewhere")
    other = tmp_path / "studies" / "two"
    other.mkdir()
    (other / "study.md").symlink_to(secret)
    (found,) = find_studies([tmp_path / "studies"])
    assert [str(path) for path in found.files()] == ["figures/plain.svg"]
    assert found.heat_maps() == []


@pytest.mark.parametrize("text", ACTIVE)
def test_an_svg_with_a_script_or_a_link_is_not_published(study, text):
    (study / "figures" / "active.svg").write_text(text)
    (found,) = find_studies([study])
    assert [str(path) for path in found.files()] == ["figures/plain.svg"]


def test_figures_of_matplotlib_are_published(study):
    import matplotlib.figure

    figure = matplotlib.figure.Figure()
    figure.subplots().plot([1, 2], label="set on = a")
    figure.savefig(study / "figures" / "own.svg")
    (found,) = find_studies([study])
    assert [str(path) for path in found.files()] == ["figures/own.svg", "figures/plain.svg"]


def test_a_page_loads_no_images_from_elsewhere_and_has_no_script_links(study):
    (study / "study.md").write_text(
        "# A\n![a](http://127.0.0.1/a.png) ![b](//127.0.0.1/b.png) ![c](figures/plain.svg) [d](javascript:alert(1))\n"
    )
    (found,) = find_studies([study])
    html = found.html()
    assert "127.0.0.1" not in html
    assert 'src="figures/plain.svg"' in html
    assert 'href="javascript' not in html
