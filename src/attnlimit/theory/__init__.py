"""What n or infinitely many tokens give, computed: no random numbers here."""
