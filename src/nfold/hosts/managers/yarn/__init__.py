"""Agents in containers of Hadoop YARN, by the REST interface of YARN Services; no line of Java, and nothing to install.

yarn_wishes   what a user typed: ResourceManager, queue, cores, memory, time
cluster_facts what the cluster says of itself: are Services on, does it spread containers, queues, file system
shared_token  where the token waits for the containers
service       the text of requests, and what answers say of each place
yarn_agents   the manager: sends the one, reads the other
"""
