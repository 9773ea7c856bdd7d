package config

import "fmt"

func (ck *checker) routers(r Routers) {
	ck.valkeyServer("routers.valkey", r.Valkey)
	ck.peers("routers.peers", r.Peers)
}

func (ck *checker) router(field, url string) {
	ck.url(field, url, "leave it out: the admin listener asks for none",
		"write the router's own address or name")
}

// peers wants the addresses of routers, each once.
func (ck *checker) peers(list string, peers []string) {
	first := map[string]int{}
	for i, peer := range peers {
		field := fmt.Sprintf("%s[%d]", list, i)
		before := len(ck.problems)
		ck.router(field, peer)
		if j, twice := first[canonical(peer)]; twice && len(ck.problems) == before {
			ck.add(field, fmt.Sprintf("%s is %s[%d] too", peer, list, j), "keep one of them")
			continue
		}
		first[canonical(peer)] = i
	}
}
