package config

import (
	"fmt"
	"time"
)

// leastAnswers is the memory from which a cache of answers is worth having.
const leastAnswers = 1 << 20

func (ck *checker) answerCache(c AnswerCache) {
	ck.size("answer_cache.answer_bytes", c.AnswerBytes, 1<<10)
	ck.longer("answer_cache.ttl", c.TTL, time.Second)
	if c.MemoryBytes == 0 {
		return
	}
	ck.size("answer_cache.memory_bytes", c.MemoryBytes, leastAnswers)
	if c.AnswerBytes > c.MemoryBytes {
		ck.add("answer_cache.answer_bytes",
			fmt.Sprintf("%v is more than all answers may have (answer_cache.memory_bytes: %v)", c.AnswerBytes,
				c.MemoryBytes), "make it smaller")
	}
}
