"""The exact law of n keys drawn from a document, at every query of it."""

from attnlimit.theory.one_query.population.law import PopulationLaw, population_law

__all__ = ["PopulationLaw", "population_law"]
