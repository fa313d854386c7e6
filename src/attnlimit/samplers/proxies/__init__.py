"""What a query may look at instead of its keys to choose among them: one proxy a file."""

from attnlimit.samplers.proxies.base import Proxy
from attnlimit.samplers.proxies.bits import Bits
from attnlimit.samplers.proxies.pages import Pages
from attnlimit.samplers.proxies.rank import Rank
from attnlimit.samplers.proxies.spec import check_proxy, parse_proxy

__all__ = ["Bits", "Pages", "Proxy", "Rank", "check_proxy", "parse_proxy"]
