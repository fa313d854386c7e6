"""What stands in for keys is near them, reads less, and is written in a few characters."""

import pytest
import torch

import attnlimit as al
from attnlimit.samplers import Products
from attnlimit.samplers.proxies import Bits, Index, Pages, parse_proxy
from attnlimit.samplers.spec import parse_sampler, sampler_spec

GENERATOR = torch.Generator().manual_seed(0)
QUERY, KEY = (torch.randn(2, n, 40, generator=GENERATOR) for n in (3, 50))
TRUE = QUERY @ KEY.transpose(-1, -2)


def miss(proxy):
    """How far products are off, up to what is common to all keys."""
    gap = proxy.products(QUERY, KEY) - TRUE
    return float((gap - gap.mean(-1, keepdim=True)).square().mean().sqrt())


def test_more_bits_are_nearer_and_read_more():
    proxies = [Bits(2), Bits(4), Bits(8)]
    misses = [miss(proxy) for proxy in proxies]
    assert misses[0] > misses[1] > misses[2]
    assert misses[2] < 0.05
    read = [proxy.bytes(64, 2) for proxy in proxies]
    assert read == sorted(read)
    assert Bits(4).bytes(64, 2) == 32 + 8
    assert Pages(16).bytes(64, 2) == 16


def test_no_key_of_a_page_has_a_better_product_than_its_page():
    result = Pages(8).products(QUERY, KEY)
    assert result.shape == TRUE.shape
    assert (result >= TRUE - 1e-5).all()
    assert (result[..., :8] == result[..., :1]).all()
    torch.testing.assert_close(Pages(1).products(QUERY, KEY), TRUE)


def test_a_threshold_by_exact_products_is_the_threshold():
    products = Products(QUERY, KEY, lambda item: item)
    places = torch.arange(3)
    plain = al.Threshold(5.0).inclusion_probabilities(TRUE, places)
    same = (
        al.Threshold(5.0, proxy="page1", floor=0)
        .bind(products)
        .inclusion_probabilities(TRUE, places)
    )
    torch.testing.assert_close(same, plain)
    least = (
        al.Threshold(5.0, proxy="page1", floor=0.5)
        .bind(products)
        .inclusion_probabilities(TRUE, places)
    )
    assert float(least.min()) == pytest.approx(5 * 0.5 / 50)


@pytest.mark.parametrize(
    "text", ["threshold:48.0:4bit", "threshold:7.5:index", "threshold:48.0:page16:0.25"]
)
def test_a_threshold_by_a_proxy_survives_its_text(text):
    assert sampler_spec(parse_sampler(text)) == text
    assert parse_sampler(text).with_size(9).proxy == parse_sampler(text).proxy


def test_what_is_no_proxy_is_refused_in_one_sentence():
    for make, message in [
        (lambda: parse_proxy("4bits"), "There is no proxy '4bits'"),
        (lambda: al.Threshold(4, proxy=3), "is not a proxy for keys"),
        (lambda: al.Threshold(4, proxy="0bit"), "from 1 to 8"),
        (lambda: al.Threshold(4, proxy="page0"), "size must be at least 1"),
        (lambda: al.Threshold(4, proxy="4bit", floor=2), "floor must lie between 0 and 1"),
        (lambda: parse_sampler("top-k:4:4bit"), "not a number"),
        (
            lambda: al.Threshold(4, proxy="4bit").inclusion_probabilities(TRUE, torch.arange(3)),
            "only scores",
        ),
    ]:
        with pytest.raises(al.BadInput, match=message):
            make()


def test_codes_of_four_bits_miss_by_half_a_step_at_most():
    centred = KEY - KEY.mean(-2, keepdim=True)
    step = centred.abs().amax(-1) / (127.5 / 16)
    gap = (Index().products(QUERY, KEY) - TRUE).abs()
    assert (gap <= QUERY.abs().sum(-1)[..., None] * step[:, None] * 0.501).all()
    assert gap.mean() < 0.1 * TRUE.std()
    assert Index().bytes(40, 2) == 24
