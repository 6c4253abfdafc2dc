{{- /*
The values of an enumeration are in the descriptions of its fields, the fields of a list are in the type of its elements, and those of BootSpec are in
PoolbootConfigSpec.
*/ -}}
{{- define "type" -}}
{{- $type := . -}}
{{- if and (markdownShouldRenderType .) (not .EnumValues) (ne .Name "BootSpec") -}}
#### {{ .Name }}

{{ .Doc }}{{ with .UnderlyingType }} Type: {{ markdownRenderTypeLink . }}.{{ end }}{{ if .References }} In {{ $and := "" }}{{ range .SortedReferences }}{{ if ne .Name "BootSpec" }}{{ $and }}{{ markdownRenderTypeLink . }}{{ $and = ", " }}{{ end }}{{ end }}.{{ end }}

{{ if and .Members (not .UnderlyingType) -}}
| Field | Description |
| --- | --- |
{{ range .Members }}{{ if not (and $type.GVK (eq .Name "metadata")) -}}
| `{{ .Name }}` _{{ if .Type.EnumValues }}string{{ else }}{{ markdownRenderType .Type }}{{ end }}_ | {{ markdownRenderFieldDoc .Doc }}
{{- range .Validation }}{{ if ne (printf "%.8s" .) "Optional" }} {{ markdownRenderFieldDoc . }},{{ end }}{{ end }} |
{{ end }}{{ end }}
{{ end }}{{ end }}
{{- end -}}
