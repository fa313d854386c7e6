"""Key-value caches that drop keys: rules, the state they see, and the caches they cut."""

from attnlimit.models.eviction import published as published  # registers its rules
