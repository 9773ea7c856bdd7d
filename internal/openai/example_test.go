package openai_test

import (
	"fmt"

	"github.com/tandem-router/tandem/internal/openai"
)

// An edit changes no other byte: unknown fields, the order of keys, number formats and spaces remain.
func ExampleRequest_Edit() {
	body := `{ "model":"m", "temperature":1.50, "prompt":"h\u00e9", "stream":true, "x_mine":{"b":1,"a":2} }`
	request, err := openai.Parse(openai.Completions, []byte(body), openai.Limits{})
	if err != nil {
		fmt.Println(err)
		return
	}
	edit := request.Edit()
	edit.Set("stream", []byte("false"))
	edit.Delete("temperature")
	edit.Set("max_tokens", []byte("1"))
	fmt.Printf("%s\n", edit.Append(nil))
	// Output:
	// { "model":"m", "prompt":"h\u00e9", "stream":false, "x_mine":{"b":1,"a":2},"max_tokens":1 }
}

// The bytes of an engine's answer remain too. Only the cached tokens of the usage become those of both legs.
func ExampleKind_Find() {
	event := `data: {"choices":[],"usage":{"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":99}}}`
	said := openai.Completions.Find([]byte(event))
	usage, _ := said.Usage()
	fmt.Printf("%d of %d\n", usage.Cached, usage.Prompt)
	fmt.Printf("%s\n", said.Shown(nil, openai.CachedPrompt{Found: 64, Added: 32}))
	// Output:
	// 99 of 100
	// data: {"choices":[],"usage":{"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":64}}}
}
