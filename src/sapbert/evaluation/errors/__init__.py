"""Error analysis: wrong links, their kinds, and a page to browse them."""
