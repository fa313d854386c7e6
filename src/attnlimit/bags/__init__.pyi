# Every public name, once: type checkers and `attnlimit.lazy` read it.
from .data import Bags as Bags
from .data import make_bags as make_bags
from .estimation import BagEstimate as BagEstimate
from .estimation import Check as Check
from .estimation import estimate as estimate
from .instance_budget import GatedAttention as GatedAttention
from .instance_budget import InstanceBudget as InstanceBudget
from .instance_budget import ScoredBags as ScoredBags
from .instance_budget import instances as instances
from .planner import BagPlan as BagPlan
from .planner import plan as plan
from .pooling import AttentionPooling as AttentionPooling
from .pooling import MaxPooling as MaxPooling
from .pooling import MeanPooling as MeanPooling
from .reading import read_bags as read_bags
