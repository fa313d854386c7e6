"""Samplers: rules that choose keys for a query, and proxies of keys."""

from attnlimit.samplers.base import Products, Sampler, check_sampler
from attnlimit.samplers.positional import SinksAndRecent, SinksAndWindow, Window
from attnlimit.samplers.proxies import Bits, Index, Pages, Proxy
from attnlimit.samplers.published import MagicPIG, Quest, Santa, Twilight, VAttention
from attnlimit.samplers.spec import parse_sampler, register, sampler_names, sampler_spec
from attnlimit.samplers.threshold import Threshold
from attnlimit.samplers.top import TopK, TopP
from attnlimit.samplers.two_level import TwoLevel
from attnlimit.samplers.uniform import Iid, Keep, UniformSampler, WithoutReplacement

__all__ = [
    "Bits",
    "Iid",
    "Index",
    "Keep",
    "MagicPIG",
    "Pages",
    "Products",
    "Proxy",
    "Quest",
    "Sampler",
    "Santa",
    "SinksAndRecent",
    "SinksAndWindow",
    "Threshold",
    "TopK",
    "TopP",
    "Twilight",
    "TwoLevel",
    "UniformSampler",
    "VAttention",
    "Window",
    "WithoutReplacement",
    "check_sampler",
    "parse_sampler",
    "register",
    "sampler_names",
    "sampler_spec",
]
