package main

import (
	"bytes"
	"errors"
)

const (
	maxTokensKey = `,"max_tokens":`
	paramsKey    = `"kv_transfer_params":`
	prefillTail  = maxTokensKey + `1,` + paramsKey + `{"do_remote_decode":true,"do_remote_prefill":false,` +
		`"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}}`
)

// prefillLeg makes the body of leg 1 from a body of completionBody.
func prefillLeg(dst, body []byte) ([]byte, error) {
	cut := bytes.LastIndex(body, []byte(maxTokensKey))
	if cut < 0 {
		return nil, errors.New("body has no max_tokens")
	}
	dst = append(dst, body[:cut]...)
	if i := bytes.Index(dst, []byte(`"stream":true`)); i >= 0 {
		dst = append(dst[:i], append([]byte(`"stream":false`), dst[i+len(`"stream":true`):]...)...)
	}
	return append(dst, prefillTail...), nil
}

// decodeLeg makes the body of leg 2 from the client's body and the answer to leg 1.
func decodeLeg(dst, body, answer []byte) ([]byte, error) {
	params, err := findParams(answer)
	if err != nil {
		return nil, err
	}
	dst = append(dst, bytes.TrimRight(body, "} \n")...)
	dst = append(dst, `,`+paramsKey...)
	dst = append(dst, params...)
	return append(dst, '}'), nil
}

// findParams cuts the transfer params out of an answer.
func findParams(answer []byte) ([]byte, error) {
	_, rest, ok := bytes.Cut(answer, []byte(paramsKey))
	rest = bytes.TrimLeft(rest, " ")
	if !ok || len(rest) == 0 || rest[0] != '{' {
		return nil, errors.New("answer to leg 1 has no transfer params")
	}
	depth := 0
	for i, c := range rest {
		switch c {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return rest[:i+1], nil
			}
		}
	}
	return nil, errors.New("transfer params do not end")
}

// directAsker sends both legs itself over two connections, like a front without any cost.
func directAsker(prefill, decode string, maxTokens int) (asker, func(), error) {
	p, err := dial(prefill)
	if err != nil {
		return nil, nil, err
	}
	d, err := dial(decode)
	if err != nil {
		p.close()
		return nil, nil, err
	}
	var bodies [promptsEach][]byte
	var leg1 [promptsEach][]byte
	for i := range bodies {
		bodies[i] = completionBody(i, maxTokens, false)
		leg, err := prefillLeg(nil, bodies[i])
		if err != nil {
			return nil, nil, err
		}
		leg1[i] = request(prefill, leg)
	}
	ask := func(n int) error {
		answer, err := p.do(leg1[n%promptsEach])
		if err != nil {
			return err
		}
		leg2, err := decodeLeg(nil, bodies[n%promptsEach], answer)
		if err != nil {
			return err
		}
		_, err = d.do(request(decode, leg2))
		return err
	}
	return ask, func() { p.close(); d.close() }, nil
}
