"""Which keys a query sees: one sampler a file, on one base."""

from attnlimit.samplers.base import Sampler
from attnlimit.samplers.iid import Iid
from attnlimit.samplers.keep import Keep
from attnlimit.samplers.proxies import Bits, Pages, Proxy, Rank
from attnlimit.samplers.sinks_and_recent import SinksAndRecent
from attnlimit.samplers.sinks_and_window import SinksAndWindow
from attnlimit.samplers.threshold import Threshold
from attnlimit.samplers.top_k import TopK
from attnlimit.samplers.top_p import TopP
from attnlimit.samplers.window import Window
from attnlimit.samplers.without_replacement import WithoutReplacement

__all__ = [
    "Bits",
    "Iid",
    "Keep",
    "Pages",
    "Proxy",
    "Rank",
    "Sampler",
    "SinksAndRecent",
    "SinksAndWindow",
    "Threshold",
    "TopK",
    "TopP",
    "Window",
    "WithoutReplacement",
]
