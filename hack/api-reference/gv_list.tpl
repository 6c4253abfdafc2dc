{{- define "gvList" -}}
# API reference

A field is optional if it is not marked as required. Empty texts, and most empty objects, are refused. [Labels and annotations](#labels-annotations-taints-and-finalizers)
are at the end.
{{ range . }}
## {{ .GroupVersionString }}

{{ range .SortedTypes }}{{ template "type" . }}{{ end }}
{{- end }}
{{- end -}}
