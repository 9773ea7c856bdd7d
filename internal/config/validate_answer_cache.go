package config

import (
	"fmt"
	"time"
)

// leastAnswers is the memory from which a cache of answers is worth having.
const leastAnswers = 1 << 20

func (c *AnswerCache) check(ck *checker) {
	ck.size("answer_cache.answer_bytes", c.AnswerBytes, 1<<10)
	ck.longer("answer_cache.ttl", c.TTL, time.Second)
	c.Valkey.check(ck, "answer_cache.valkey")
	if c.MemoryBytes == 0 {
		if len(c.Valkey.Addresses) > 0 {
			ck.add("answer_cache.valkey.addresses", "is set, and the cache is off",
				"set answer_cache.memory_bytes, for the memory in front of it")
		}
		return
	}
	ck.size("answer_cache.memory_bytes", c.MemoryBytes, leastAnswers)
	if c.AnswerBytes > c.MemoryBytes {
		ck.add("answer_cache.answer_bytes",
			fmt.Sprintf("%v is more than all answers may have (answer_cache.memory_bytes: %v)", c.AnswerBytes,
				c.MemoryBytes), "make it smaller")
	}
}

func (v *Valkey) check(ck *checker, field string) {
	v.ValkeyServer.check(ck, field)
	ck.longer(field+".budget", v.Budget, time.Millisecond)
	ck.secret(field+".secret", v.Secret, false)
	ck.secret(field+".former_secret", v.FormerSecret, false)
	if v.FormerSecret.IsSet() && !v.Secret.IsSet() {
		ck.add(field+".former_secret", "is set and secret is not", "set secret, or leave former_secret out")
	}
	ck.least(field+".secret", Secret{Value: v.Secret.Value}, leastSecret)
	ck.least(field+".former_secret", Secret{Value: v.FormerSecret.Value}, leastSecret)
}

func (v *ValkeyServer) check(ck *checker, field string) {
	for i, addr := range v.Addresses {
		ck.address(fmt.Sprintf("%s.addresses[%d]", field, i), addr)
	}
	ck.oneOf(field+".mode", v.Mode, ValkeySingle, ValkeyCluster, ValkeySentinel)
	if v.Mode == ValkeySingle && len(v.Addresses) > 1 {
		ck.add(field+".addresses", "has several servers", "choose mode: cluster or sentinel, or keep one")
	}
	if sentinel := v.Mode == ValkeySentinel; sentinel != (v.Master != "") {
		ck.add(field+".master", "goes with mode: sentinel, and that with it", "set both or neither")
	}
	if !v.Secure && v.TLS != (ClientTLS{}) {
		ck.add(field+".tls", "is set and secure is not", "set secure: true or leave tls out")
	}
	ck.pair(field+".tls", v.TLS.Cert, v.TLS.Key)
	ck.secret(field+".password", v.Password, false)
}
