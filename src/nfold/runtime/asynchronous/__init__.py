"""The asynchronous parameter server: a service that reacts to whoever comes, where a schedule has a list to play."""
