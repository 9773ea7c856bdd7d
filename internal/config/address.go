package config

import (
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// addressOf reads n as an address that the parser took for a field with a value: within braces it sees
// http://p0 and 8000 in http://p0:8000, where YAML has one text, since no space follows the colon.
func addressOf(n ast.Node) (*ast.StringNode, bool) {
	pairs, ok := pairsOf(n)
	if !ok || len(pairs) != 1 || pairs[0].Key == nil || pairs[0].Value == nil {
		return nil, false
	}
	key, ok := pairs[0].Key.(*ast.StringNode)
	if !ok || key.Token.Type != token.StringType || !strings.Contains(key.Value, "://") {
		return nil, false
	}
	port, colon := pairs[0].Value.GetToken(), pairs[0].Start
	if port == nil || colon == nil || port.Position.Line != colon.Position.Line ||
		port.Position.Column != colon.Position.Column+1 {
		return nil, false
	}
	if _, scalar := pairs[0].Value.(ast.ScalarNode); !scalar {
		return nil, false
	}
	text := key.Value + ":" + strings.TrimSpace(port.Origin)
	return ast.String(token.New(text, text, key.Token.Position)), true
}
