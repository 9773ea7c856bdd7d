package config

import "fmt"

func (ck *checker) routers(r Routers) {
	ck.valkeyServer("routers.valkey", r.Valkey)
	first := map[string]int{}
	for i, peer := range r.Peers {
		field := fmt.Sprintf("routers.peers[%d]", i)
		before := len(ck.problems)
		ck.url(field, peer, "leave it out: the admin listener asks for none",
			"write the router's own address or name")
		if j, twice := first[canonical(peer)]; twice && len(ck.problems) == before {
			ck.add(field, fmt.Sprintf("%s is routers.peers[%d] too", peer, j), "keep one of them")
			continue
		}
		first[canonical(peer)] = i
	}
}
