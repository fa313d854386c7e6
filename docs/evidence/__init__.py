"""Where do the numbers of the pages come from? One function a table, from finished run folders."""
