package tokenizer

// MediaTokens is the assumed size, in tokens, of an image or a recording in a request. Encoders make some
// hundreds to a few thousand tokens, whatever the number of bytes.
const MediaTokens = 1024

// mediaRun is how many bytes of base64 without a break are no text. A word that long is none.
const mediaRun = 512

// EstimateTokens guesses how many tokens are in a JSON request or a part of a request. perToken is the bytes
// of text for each token. Base64 counts as media. The result is at least 1.
func EstimateTokens(raw []byte, perToken float64) int {
	text, media := 0, 0
	for i := 0; i < len(raw); {
		from := i
		for i < len(raw) && base64Byte[raw[i]] {
			i++
		}
		if i-from >= mediaRun {
			media++
		} else {
			text += i - from
		}
		for ; i < len(raw) && !base64Byte[raw[i]]; i++ {
			text++
		}
	}
	if !(perToken >= 0.1) {
		perToken = 0.1
	}
	return max(1, int(float64(text)/perToken)+media*MediaTokens)
}

// base64Byte has the two alphabets of base64, and the backslash that some writers of JSON put before a slash.
var base64Byte = func() (set [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=\\") {
		set[c] = true
	}
	return set
}()
