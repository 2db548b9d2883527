"""The store on Redis: one Lua call to look up, one to apply."""
